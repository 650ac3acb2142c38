"""Use cases of `peagle-sm learn`: data, training, proof, promotion, and all of it."""
