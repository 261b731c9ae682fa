"""What may vary in a search: arguments, their values, and every configuration as a point of the unit cube."""

from operant.errors import ArgumentError, ConfigError
from operant.space._build import DuplicateArgument, build_space, place_argument_error
from operant.space._conditions import When
from operant.space._containers import Container, Dict, File, List
from operant.space._layout import Argument, Config, Layout
from operant.space._leaves import Categorical, Int, Leaf, Nested, Numeric, Real, Space
from operant.space._product import Product
from operant.space._yaml import load_yaml, load_yaml_file
from operant.space.files import check_paths, edit_text

__all__ = [
    "Argument",
    "ArgumentError",
    "Categorical",
    "Config",
    "ConfigError",
    "Container",
    "Dict",
    "DuplicateArgument",
    "File",
    "Int",
    "Layout",
    "Leaf",
    "List",
    "Nested",
    "Numeric",
    "Product",
    "Real",
    "Space",
    "When",
    "build_space",
    "check_paths",
    "edit_text",
    "load_yaml",
    "load_yaml_file",
    "place_argument_error",
]
