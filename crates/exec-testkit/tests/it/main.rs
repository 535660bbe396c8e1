//! The conformance suite on every environment (a new environment is one more line), and what one environment alone
//! cannot show: killed owners and keepers, large volumes, full disks, comparison with Codex.

mod app_server;
mod attached;
mod audits;
mod ceilings;
mod codex;
mod compat;
mod descriptors;
mod durability;
mod endurance;
mod environments;
mod file_tools;
mod hostile;
mod keeper_line;
mod mcp;
mod network;
mod observers;
mod odd_kernels;
mod remote;
mod remote_files;
mod router;
mod sandbox_probes;
mod server_robust;
mod token_scopes;
mod tokens;
mod tools_shell;
mod views;
mod volume;

use exec_testkit::conformance;

conformance!(keeper_as_thread, environments::keeper_as_thread());
conformance!(keeper_as_process, environments::keeper_as_process());
conformance!(keeper_that_outlives, environments::keeper_that_outlives());
conformance!(without_cgroups, environments::without_cgroups());
conformance!(remote_over_memory, remote::over_memory());
conformance!(remote_over_a_unix_socket, remote::over_unix_socket());
conformance!(remote_over_websocket, remote::over_websocket());
conformance!(remote_over_stdio, remote::over_stdio());
conformance!(remote_over_a_transport_that_breaks, remote::over_a_transport_that_breaks());
