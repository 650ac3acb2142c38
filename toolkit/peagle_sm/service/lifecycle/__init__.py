"""An endpoint from nothing to in service and back: deploy, update, pause, resume, delete."""
