//! The keeper from outside: its messages and its files on disk, intact and damaged, and owners that misbehave.

mod damage;
mod hanging;
mod hung_starts;
mod index;
mod orphaned;
mod owners;
mod protocol;
mod resume;
mod scan;
mod test_owner;
