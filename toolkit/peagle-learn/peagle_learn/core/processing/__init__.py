"""Preparation of prompts in SageMaker Processing jobs: lines between the jobs, requests, plan. Pure."""
