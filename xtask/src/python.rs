//! The Python packages: built into wheels, installed into an environment of their own, and tested there.
use crate::step::{Outcome, status};
use crate::{WORKSPACE, root, target};
use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};

/// Folders of tests, each with the tests in it that need PyTorch in their own interpreter.
const TESTS: [(&str, &[&str]); 2] = [
    (
        "bindings/torch/python/tests",
        &[
            "test_activations.py",
            "test_checkpoints.py",
            "test_layers.py",
            "test_share.py",
            "test_tags.py",
            "test_torch_memory_saver.py",
            "test_weights.py",
        ],
    ),
    (
        "lab/python/tests",
        &[
            "test_again.py",
            "test_apply.py",
            "test_fit.py",
            "test_sharding.py",
            "test_upstream.py",
            "test_workspaces.py",
        ],
    ),
];

/// Builds, installs and tests the packages; says what is missing where there is no Python.
pub(crate) fn test() -> Outcome {
    let Some(python) = python() else {
        println!(
            "    no Python 3 with venv here: install python3 and python3-venv to test bindings/torch"
        );
        return Ok(());
    };
    let folder = target().join("python");
    status("venv", Command::new(python).args(["-m", "venv"]).arg(&folder))?;
    let inside = folder.join("bin/python");
    for package in ["bindings/torch", "lab/python"] {
        if let Err(why) = install(&inside, package) {
            println!(
                "    {package} could not be installed: pip needs an index, or setuptools and wheel"
            );
            return Err(why);
        }
    }
    for (name, module) in [("OMNIHEAP_TORCH_PYTHON", "PyTorch"), ("OMNIHEAP_RAY_PYTHON", "Ray")] {
        if std::env::var_os(name).is_none() {
            println!("    NOT TESTED with {module}: set {name} to a Python that has it");
        }
    }
    for (folder, _) in TESTS {
        let mut run = Command::new(&inside);
        run.args(["-m", "unittest", "discover", "-s"]).arg(root().join(folder));
        // Built by the tests of the command.
        run.env("OMNIHEAP_COMMAND", target().join("debug/omniheap"));
        status("python tests", &mut run)?;
    }
    std::env::var_os("OMNIHEAP_TORCH_PYTHON").map_or(Ok(()), |torch| test_with(&torch))
}

/// Builds a wheel and installs it. Cargo builds what is not built; it finds the tools of this run in the environment. Without optimisation: what
/// is tested is how the package is made and what it calls.
fn install(python: &Path, package: &str) -> Outcome {
    let mut install = Command::new(python);
    // The second package needs the first, which is here and in no index.
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]);
    install.arg("--force-reinstall").arg(root().join(package));
    install.env("OMNIHEAP_CARGO_PROFILE", "dev");
    install.env("OMNIHEAP_CARGO_PACKAGES", WORKSPACE.join(" "));
    status("pip install", &mut install)
}

/// Runs what needs PyTorch with a Python that has it, in a process for each: PyTorch takes one allocator.
fn test_with(torch: &OsStr) -> Outcome {
    let folders = ["bindings/torch/python", "lab/python"].map(|folder| root().join(folder));
    let path = std::env::join_paths(folders).map_err(|why| why.to_string())?;
    for (folder, patterns) in TESTS {
        for pattern in patterns {
            let mut run = Command::new(torch);
            run.args(["-m", "unittest", "discover", "-p", pattern, "-s"]).arg(root().join(folder));
            run.env("PYTHONPATH", &path);
            run.env("OMNIHEAP_LIBRARY", target().join("debug/libomniheap_torch.so"));
            run.env("OMNIHEAP_COMMAND", target().join("debug/omniheap"));
            status(pattern, &mut run)?;
        }
    }
    Ok(())
}

fn python() -> Option<&'static str> {
    let works = |name: &&str| {
        let probe = Command::new(name)
            .args(["-c", "import ensurepip, venv"])
            .stderr(Stdio::null())
            .status();
        probe.is_ok_and(|status| status.success())
    };
    ["python3", "python"].into_iter().find(works)
}
