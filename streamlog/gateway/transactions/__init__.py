"""The transaction coordinator: states of transactional ids, markers, timeouts."""
