//! The few system calls that `rustix` does not offer. Only this module and those below it contain `unsafe`.

pub(crate) mod clone;
pub(crate) mod confine;
pub(crate) mod listener;
pub mod name_service;
mod own_network;
pub(crate) mod own_process;
pub mod passed_sockets;
pub(crate) mod pidfd;
pub(crate) mod shared_page;
mod supervise;
pub mod trial;
mod user;

fn last_errno() -> rustix::io::Errno {
    rustix::io::Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(rustix::io::Errno::IO)
}
