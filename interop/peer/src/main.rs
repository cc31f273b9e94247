//! The published flodl crate as a process: whichever part its environment asks for.
//!
//! | variable                                                   | part     | what it does              |
//! | ---------------------------------------------------------- | -------- | ------------------------- |
//! | `FLODL_INTERNAL_FULL_CLUSTER_JSON`                         | launcher | the controller of a world |
//! | `FLODL_INTERNAL_AGENT_JSON`                                | agent    | joins, spawns, supervises |
//! | `FLODL_INTERNAL_CLUSTER_JSON`, `FLODL_INTERNAL_LOCAL_RANK` | rank     | becomes `$PEER_RANK_CMD`  |
//! | `FLODL_INTERNAL_RELAY_JSON`                                | relay    | becomes `$PEER_RELAY_CMD` |
//!
//! Everything on the wire is the crate's own; only what a rank or a relay then does is ours to say.

use std::fmt::Display;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use flodl::distributed::LocalCluster;
use flodl::distributed::launcher::{self, FullCluster, Role};

#[cfg(feature = "asks-nccl")]
mod nccl;

/// The part failed; what the crate's own binaries end with then.
const FAILED: u8 = 1;
/// The environment names no part, or several.
const MISUSED: u8 = 64;

fn main() -> ExitCode {
    let outcome = match launcher::dispatch() {
        Err(mix) => return complain(MISUSED, mix),
        Ok(Role::Launcher) => FullCluster::from_env().and_then(control),
        Ok(Role::Agent) => launcher::run_agent(),
        // A rank's first act in training too; one that cannot read its envelope goes no further.
        Ok(Role::Rank) => match LocalCluster::from_env() {
            Ok(_) => return become_shell("PEER_RANK_CMD"),
            Err(failure) => Err(failure),
        },
        Ok(Role::Relay) => return become_shell("PEER_RELAY_CMD"),
        Ok(other) => return complain(MISUSED, format!("no part to play as {other:?}")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => complain(FAILED, failure),
    }
}

/// Runs the launcher's control side without a training coordinator, so no relay is asked for.
fn control(cluster: FullCluster) -> flodl::tensor::Result<()> {
    let abort = Arc::new(AtomicBool::new(false));
    #[cfg(feature = "asks-nccl")]
    return launcher::run_launcher_with_config(cluster, None, None, None, abort);
    #[cfg(not(feature = "asks-nccl"))]
    launcher::run_launcher_with_config(cluster, None, None, abort)
}

/// Replaces this process, and keeps its environment, by the shell command in a variable.
fn become_shell(variable: &str) -> ExitCode {
    let command = std::env::var(variable).unwrap_or_else(|_| String::from(":"));
    complain(FAILED, Command::new("/bin/sh").args(["-c", &command]).exec())
}

fn complain(code: u8, what: impl Display) -> ExitCode {
    eprintln!("flodl-peer: {what}");
    ExitCode::from(code)
}
