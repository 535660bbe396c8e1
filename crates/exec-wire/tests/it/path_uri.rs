//! path_uri
