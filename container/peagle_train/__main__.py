"""``python -m peagle_train train``; SageMaker starts the image with the argument ``train``."""

import sys

from peagle_train.job import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
