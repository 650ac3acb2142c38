"""Life cycle of an endpoint: deploy, update, pause, resume, delete."""
