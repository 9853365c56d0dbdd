"""The handlers of requests, a module for each area; `dispatch` collects their tables."""
