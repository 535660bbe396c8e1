//! `exec-server doctor`: what this machine can enforce on a program, and what to do about the rest.

use anyhow::Context;
use exec_core::{Limit, LimitMeans};
use exec_local::SandboxDiagnosis;
use serde::Serialize;

use crate::args::DoctorArgs;
use crate::messages;

/// One line of the report.
#[derive(Debug, Serialize)]
struct Finding {
    name: String,
    works: bool,
    /// How it works, or why not and what would help.
    detail: String,
}

pub(crate) async fn run(args: &DoctorArgs) -> anyhow::Result<u8> {
    let diagnosis = tokio::task::spawn_blocking(exec_local::diagnose).await?;
    let findings = findings(&diagnosis);
    if args.json {
        messages::print_json(&findings)?;
    } else {
        let lines = findings.iter().map(|Finding { name, works, detail }| {
            let mark = if *works { "ok" } else { "NO" };
            format!("{mark}  {name}: {detail}\n")
        });
        messages::print_stdout(lines.collect::<String>().as_bytes()).context("cannot write to stdout")?;
    }
    // For scripts: whether the usual sandboxes work.
    let all = diagnosis.policies.iter().all(|(_, planned)| planned.is_ok());
    Ok(u8::from(!all))
}

fn findings(diagnosis: &SandboxDiagnosis) -> Vec<Finding> {
    let SandboxDiagnosis { landlock_abi, landlock_needed, pid_namespaces, mounts, supervision, policies, limits } =
        diagnosis;
    let landlock = match landlock_abi {
        0 => "the kernel has none, or does not allow it: boot with lsm=landlock,… or relax the container's seccomp profile".to_owned(),
        found if found < landlock_needed => {
            format!("version {found}, and only {landlock_needed} (Linux 6.12) keeps signals inside; before, a pid namespace does")
        }
        found => format!("version {found}"),
    };
    let mut findings = vec![
        Finding { name: "landlock".to_owned(), works: landlock_abi >= landlock_needed, detail: landlock },
        Finding {
            name: "mounts of its own".to_owned(),
            works: mounts.is_ok(),
            detail: mounts.clone().map_or_else(|why| why, str::to_owned),
        },
        Finding {
            name: "pid namespaces".to_owned(),
            works: pid_namespaces.is_ok(),
            detail: match pid_namespaces {
                Ok(()) => "used where Landlock keeps no signals inside".to_owned(),
                Err(why) => why.clone(),
            },
        },
        Finding {
            name: "supervised files".to_owned(),
            works: supervision.is_ok(),
            detail: match supervision {
                Ok(()) => "used for policies that write, where there are no mounts".to_owned(),
                Err(why) => why.clone(),
            },
        },
    ];
    findings.extend(policies.iter().map(|(name, planned)| Finding {
        name: format!("sandbox {name}"),
        works: planned.is_ok(),
        detail: match planned {
            Ok(report) => report.means.iter().map(|means| means.name()).collect::<Vec<_>>().join(", "),
            Err(why) => why.clone(),
        },
    }));
    findings.extend(limits.iter().map(|(limit, means)| Finding {
        name: format!("limit {}", limit.name()),
        works: means.is_ok(),
        detail: match means {
            Ok(means) => describe_means(*limit, *means).to_owned(),
            Err(why) => why.clone(),
        },
    }));
    findings
}

fn describe_means(limit: Limit, means: LimitMeans) -> &'static str {
    match (means, limit) {
        (LimitMeans::CgroupV1, _) => "a cgroup of version 1, for the whole process tree",
        (LimitMeans::CgroupV2, _) => "a cgroup of version 2, for the whole process tree",
        (LimitMeans::Rlimit, Limit::MemoryBytes) => {
            "a resource limit on the address space of each process; run the server where it may make cgroups to limit the \
             whole tree"
        }
        (LimitMeans::Rlimit, Limit::CpuSeconds) => {
            "a resource limit of each process; run the server where it may make cgroups to limit the whole tree"
        }
        (LimitMeans::Rlimit, _) => "a resource limit of each process",
    }
}
