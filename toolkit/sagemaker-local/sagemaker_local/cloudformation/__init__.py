"""CloudFormation on this machine: templates, stacks, change sets, updates that roll back, exports."""
