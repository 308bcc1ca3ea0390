"""``python -m wiretax``."""

from wiretax.cli.main import main

if __name__ == "__main__":
    main()
