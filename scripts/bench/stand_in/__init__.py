"""How the draft heads of SmolLM2-135M-Instruct are made: prompts, answers, training."""
