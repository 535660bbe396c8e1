//! `exec-server ssh` and what it rests on, with the real OpenSSH: a throw-away sshd on the loopback, with keys of its own, and
//! a far side whose home is a folder of the test.
//!
//! The modules, each a kind of fact: [`runs`] what a program there does, [`breaks`] what survives, [`brought`] how the binary
//! gets there, [`shells`] login shells and words, [`failures`] what people are told, [`containers`] docker and its like,
//! [`account`] the server of the account on this machine.

mod account;
mod breaks;
mod brought;
mod containers;
mod failures;
mod runs;
mod shells;
