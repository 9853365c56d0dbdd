"""The `streamlog` command. Modules named after a verb declare it; the heavy imports wait inside."""
