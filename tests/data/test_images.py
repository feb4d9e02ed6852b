"""Reading a user's pictures: whole ones come through, damaged ones are named."""

import cv2
import numpy as np
import pytest

from halfmask.data import images
from halfmask.data.images import crop_transform, read_image
from halfmask.errors import HalfmaskError


def pixel(picture, x, y):
    return tuple(int(v) for v in picture[y, x])


def photo(height=40, width=30):
    small = np.random.default_rng(0).integers(0, 255, (5, 5, 3), dtype=np.uint8)
    return cv2.resize(small, (width, height))


def write_bgr(path, pixels):
    assert cv2.imwrite(str(path), pixels)
    return path


def test_grey_pictures_become_rgb(tmp_path):
    grey = photo()[:, :, 0]
    loaded = read_image(write_bgr(tmp_path / "grey.png", grey))
    assert loaded.shape == (40, 30, 3)
    assert (loaded == grey[:, :, None]).all()


def test_sixteen_bits_become_eight(tmp_path):
    pixels = np.full((3, 3, 3), 65535, dtype=np.uint16)
    pixels[0] = 128 * 257
    loaded = read_image(write_bgr(tmp_path / "deep.png", pixels))
    assert loaded.dtype == np.uint8
    assert pixel(loaded, 0, 0) == (128, 128, 128)
    assert pixel(loaded, 0, 2) == (255, 255, 255)


def test_missing_file_is_named(tmp_path):
    with pytest.raises(HalfmaskError, match=r"no image at .*nowhere\.jpg"):
        read_image(tmp_path / "nowhere.jpg")


def test_folder_is_not_an_image(tmp_path):
    with pytest.raises(HalfmaskError, match="no image at"):
        read_image(tmp_path)


@pytest.mark.parametrize("content", [b"", b"not a picture", b"\xff\xd8\xff\xe0"])
def test_corrupt_file_is_named(tmp_path, content):
    path = tmp_path / "bad.jpg"
    path.write_bytes(content)
    with pytest.raises(HalfmaskError, match=r"bad\.jpg cannot be read as an image"):
        read_image(path)


@pytest.mark.parametrize("suffix", [".jpg", ".png"])
@pytest.mark.parametrize("share", [0.3, 0.7, 0.97])
def test_truncated_file_is_named(tmp_path, suffix, share):
    whole = write_bgr(tmp_path / f"whole{suffix}", photo(200, 200)).read_bytes()
    path = tmp_path / f"cut{suffix}"
    path.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(HalfmaskError, match=rf"cut\{suffix} cannot be read as an image"):
        read_image(path)


def test_jpeg_without_its_end_is_noticed_even_when_the_decoder_is_lenient(tmp_path, monkeypatch):
    # OpenCV 4 returns a picture here, grey where data are missing.
    monkeypatch.setattr(images.cv2, "imdecode", lambda *_: photo())
    whole = write_bgr(tmp_path / "whole.jpg", photo(200, 200)).read_bytes()
    path = tmp_path / "cut.jpg"
    path.write_bytes(whole[:20] + b"\xff\xd9 thumbnail" + whole[20 : len(whole) // 2])
    with pytest.raises(HalfmaskError, match="cannot be read as an image"):
        read_image(path)


def test_jpeg_with_data_after_its_end_is_fine(tmp_path):
    path = write_bgr(tmp_path / "camera.jpg", photo())
    path.write_bytes(path.read_bytes() + b"maker's notes")
    assert read_image(path).shape == (40, 30, 3)


def test_crop_is_the_box_grown_in_the_networks_shape() -> None:
    transform = crop_transform((10, 20, 40, 50), (128, 96))
    corners = np.array([[9.5, 19.5], [49.5, 69.5]]) @ transform[:, :2].T + transform[:, 2]
    np.testing.assert_allclose(corners.mean(0), [(96 - 1) / 2, (128 - 1) / 2])
    share = (corners[1] - corners[0]) / [96, 128]
    assert share.max() == pytest.approx(0.8) and share.min() < 0.8
    whole = crop_transform((0, 0, 96, 128), (128, 96), grow=1.0)
    np.testing.assert_allclose(whole, [[1, 0, 0], [0, 1, 0]], atol=1e-12)


def test_a_jpeg_cut_short_is_refused_and_a_whole_one_is_not(tmp_path) -> None:
    path = tmp_path / "a.jpg"
    cv2.imwrite(str(path), np.random.default_rng(0).integers(0, 255, (90, 90, 3)).astype(np.uint8))
    assert read_image(path).shape == (90, 90, 3)
    whole = path.read_bytes()
    for kept in (len(whole) // 2, len(whole) - 2, 20, 0):
        path.write_bytes(whole[:kept])
        with pytest.raises(HalfmaskError, match="corrupt, empty or of another format"):
            read_image(path)
