//! The decoder against hand-made bytes, and against our own encoder under any cut.

use proptest::prelude::*;

use super::*;
use crate::websocket::frame::{Masks, Role};
