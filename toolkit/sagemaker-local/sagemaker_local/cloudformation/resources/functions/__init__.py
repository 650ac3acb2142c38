"""Lambda functions, what starts them on time, and custom resources, which call them."""
