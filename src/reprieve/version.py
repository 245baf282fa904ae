"""The version of this release, written here alone: layers below the package's own module name it too."""

__version__ = "0.1.0"
