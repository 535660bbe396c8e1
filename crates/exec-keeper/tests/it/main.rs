//! The keeper from outside: what it says and keeps on disk, read back from anything, and how it bears owners that
//! misbehave.

mod damage;
mod index;
mod owners;
mod protocol;
mod resume;
