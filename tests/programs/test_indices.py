"""Loaded indices all the way through: what they select, and that one which selects nothing stops the program."""
import pytest
import torch

import deplodock

X = torch.randn(5, 7, generator=torch.Generator().manual_seed(0))
I, J, G = torch.tensor([4, 0, -2]), torch.tensor([3, 7, 5]), torch.tensor([[0, 3, 1, 2, 0, 0, 4]])


def selections(x, i, j, g):
    """j - 3 is an index where it is defined; beside other values in one kernel it is computed where it is none."""
    return x[i], x[:, i, None], x.gather(0, g), x.take(g - 9), torch.cat([x.index_select(0, j - 3) @ x.T, x @ x.T])


def test_selections_and_indices_outside_of_their_dimension():
    compiled = deplodock.compile(selections, (X, I, J, G))
    for found, wanted in zip(compiled(X, I, J, G), selections(X, I, J, G), strict=True):
        assert torch.allclose(found, wanted, atol=1e-5, rtol=1e-5)
    for bad in ((X, I - 4, J, G), (X, I + 1, J, G), (X, I, J + 1, G), (X, I, J - 1, G), (X, I, J, G + 1)):
        with pytest.raises((IndexError, RuntimeError)):
            selections(*bad)
        with pytest.raises(IndexError, match="is out of range for a dimension of"):
            compiled(*bad)
