"""Manifests: what an operator says of a tool server that says nothing itself (docs/manifests.md)."""

from recorder.manifest.checking import Checked, against
from recorder.manifest.checking import read as read_manifest
from recorder.manifest.model import Manifest
from recorder.manifest.source import BadManifest, Finding

__all__ = ["BadManifest", "Checked", "Finding", "Manifest", "against", "read_manifest"]
