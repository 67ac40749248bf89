"""Models, their data and their training. The only package, besides the worker, that may import torch."""
