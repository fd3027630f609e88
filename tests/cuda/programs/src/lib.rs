//! C programs that use the CUDA driver by every door, built and run over the stand-in.
//!
//! The programs print the results that they see, and nothing that differs from run to run. The results must not depend on the
//! door, nor on a library that is loaded before the program.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use libtest_mimic::Failed;

/// Doors to the driver: the first argument of a program.
pub const DOORS: [&str; 5] = ["linked", "soname", "name", "proc", "thread"];

/// Seconds that a case may take before it is ended: it hangs.
const LONGEST: &str = "120";

/// The C files of every program but the plugin.
const SOURCES: [&str; 5] = ["main.c", "memory.c", "work.c", "bad.c", "misuse.c"];

/// The built programs, and the folder where they find the driver.
#[derive(Clone, Debug)]
pub struct Rig {
    folder: PathBuf,
}

/// One run of a case.
#[derive(Clone, Debug, Default)]
pub struct Job<'a> {
    /// The case's name.
    pub case: &'a str,
    /// The door's name.
    pub door: &'a str,
    /// A library that is loaded before the program.
    pub preload: Option<&'a Path>,
    /// Variables of the environment.
    pub variables: Vec<(&'a str, &'a str)>,
    /// True if the driver is left out.
    pub is_without_driver: bool,
}

impl Rig {
    /// Builds the programs in a folder, and lays the driver beside them.
    ///
    /// # Errors
    ///
    /// The output of the C compiler, or the system's error.
    pub fn build(folder: &Path, driver: &Path) -> Result<Self, Failed> {
        let libraries = folder.join("lib");
        fs::create_dir_all(&libraries)?;
        lay(driver, &libraries.join("libcuda.so.1"))?;
        lay(Path::new("libcuda.so.1"), &libraries.join("libcuda.so"))?;
        let rig = Self { folder: folder.to_owned() };
        rig.compile("opened", &SOURCES, &["-ldl", "-lpthread"])?;
        let link = [&format!("-L{}", libraries.display()), "-l:libcuda.so.1", "-ldl", "-lpthread"];
        rig.compile("linked", &SOURCES, &[&["-DLINKED"], &link[..]].concat())?;
        let plugin = [&["-shared", "-fPIC"], &link[..]].concat();
        rig.compile("libplugin.so", &["plugin.c"], &plugin)?;
        Ok(rig)
    }

    fn compile(&self, name: &str, sources: &[&str], options: &[&str]) -> Result<(), Failed> {
        let c = Path::new(env!("CARGO_MANIFEST_DIR")).join("c");
        let mut command = Command::new("cc");
        command.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-o"]);
        command.arg(self.folder.join(name)).args(sources.iter().map(|source| c.join(source)));
        let output = command.args(options).output()?;
        if output.status.success() {
            return Ok(());
        }
        Err(format!("{name}: {}", String::from_utf8_lossy(&output.stderr)).into())
    }

    /// Returns a path beside the programs.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Lists the cases.
    ///
    /// # Errors
    ///
    /// A program that does not start.
    pub fn cases(&self) -> Result<Vec<String>, Failed> {
        let output = Command::new(self.path("opened")).arg("list").output()?;
        Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
    }

    /// Runs a case and returns what it printed.
    ///
    /// # Errors
    ///
    /// A run that fails, with its output.
    pub fn run(&self, job: &Job<'_>) -> Result<String, Failed> {
        let Output { status, stdout, stderr } = self.output(job)?;
        let text = String::from_utf8_lossy(&stdout).into_owned();
        if status.success() {
            return Ok(text);
        }
        let errors = String::from_utf8_lossy(&stderr);
        Err(format!("{} by {}: {status}\n{text}\n{errors}", job.case, job.door).into())
    }

    /// Runs a case, however it ends.
    ///
    /// # Errors
    ///
    /// A program that does not start.
    pub fn output(&self, job: &Job<'_>) -> Result<Output, Failed> {
        Ok(self.command(job).output()?)
    }

    fn command(&self, job: &Job<'_>) -> Command {
        let program = if job.door == "linked" { "linked" } else { "opened" };
        let mut command = Command::new("timeout");
        command.arg(LONGEST).arg("env");
        // Set for the program alone, because `timeout` is no CUDA program.
        if let Some(library) = job.preload {
            command.arg(format!("LD_PRELOAD={}", library.display()));
        }
        command.arg(self.path(program)).args([job.door, job.case]);
        let lib = if job.is_without_driver { self.path("none") } else { self.path("lib") };
        let list = [lib, self.folder.clone()].map(|path| path.display().to_string()).join(":");
        command.env("LD_LIBRARY_PATH", list).envs(job.variables.iter().copied());
        command
    }
}

/// Puts a link to a file at a path, in the place of one that is there.
fn lay(file: &Path, link: &Path) -> io::Result<()> {
    match fs::remove_file(link) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => symlink(file, link),
    }
}
