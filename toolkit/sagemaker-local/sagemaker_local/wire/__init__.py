"""AWS's shapes of replies, errors and signatures."""
