"""What is known of models, heads, images, instances and prices, each with its source and date."""
