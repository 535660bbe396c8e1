//! Temporary, to be removed: builds only two modules of `it`.
#[path = "it/compat.rs"]
mod compat;
#[path = "it/server_robust.rs"]
mod server_robust;
mod environments {
    pub(crate) const ACTOR: &str = env!("CARGO_BIN_EXE_actor");
}
