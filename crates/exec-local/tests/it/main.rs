//! What this machine's environment does: the suite for files, what only shows from outside (kills, overflow), and HTTP.

mod files;
mod http;
