import math
import sys

import numpy as np
import pytest
from PIL import Image

from loadtest import plot
from loadtest.errors import PlotError
from loadtest.plot import require_matplotlib, spectrum, write_spectrum
from loadtest.stats import percentile


def test_the_line_passes_through_the_nearest_rank_percentiles():
    latencies = np.random.default_rng(0).exponential(size=1000)
    shares, values = spectrum(latencies)
    for percent in (50.0, 90.0, 99.0, 99.9):
        # Just below the share, where the step that ends there is drawn.
        step = np.searchsorted(shares, percent / 100.0 - 1e-9, side="right") - 1
        assert values[step] == percentile(latencies, percent)


def test_the_line_ends_half_a_request_short_of_one():
    shares, values = spectrum(np.array([3.0, 1.0, math.inf, 2.0]))
    np.testing.assert_allclose(shares, [0.0, 0.25, 0.5, 0.75, 0.875])
    np.testing.assert_array_equal(values, [1.0, 2.0, 3.0, math.inf, math.inf])


@pytest.mark.parametrize("failures", [0, 30, 500])
def test_the_picture_is_drawn_with_a_line_for_each_scheme(tmp_path, failures):
    generator = np.random.default_rng(1)
    latencies = {name: 0.05 + generator.exponential(0.02, size=500) for name in ("none", "letcc")}
    latencies["none"][:failures] = math.inf
    path = tmp_path / "spectrum.png"
    write_spectrum(path, latencies, title="Latency", subtitle="four replicas; " * 12)
    with Image.open(path) as image:
        assert image.size[0] == 1800
        pixels = np.asarray(image.convert("RGB")).reshape(-1, 3)
    for colour in ([0x00, 0x00, 0x00], [0xD5, 0x5E, 0x00]):
        assert (pixels == colour).all(axis=1).sum() > 500


def test_a_missing_matplotlib_is_named_with_the_extra_that_brings_it(monkeypatch, tmp_path):
    monkeypatch.setattr(plot, "find_spec", lambda _: None)
    with pytest.raises(PlotError, match=r"unstraggle\[loadtest\]"):
        require_matplotlib()
    with pytest.raises(PlotError):
        write_spectrum(tmp_path / "x.png", {"none": np.ones(3)}, title="", subtitle="")


def test_matplotlib_is_not_imported_before_it_is_needed():
    import subprocess

    code = "import sys, loadtest.cli; sys.exit('matplotlib' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
