"""The services that are not SageMaker: moto in this process, with our additions."""
