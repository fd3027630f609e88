//! Programs over the stand-in of the driver, with the library and without it.
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::{env, fs, process};

/// Folder of this test run: the driver and HIP's runtime under their names, and programs.
pub(crate) struct Rig {
    pub(crate) folder: PathBuf,
    pub(crate) library: PathBuf,
}

impl Rig {
    /// Returns the rig, built once.
    pub(crate) fn get() -> &'static Self {
        static RIG: OnceLock<Rig> = OnceLock::new();
        RIG.get_or_init(|| {
            let own = env::current_exe().expect("a test has a file");
            let built = own.parent().expect("it lies in a folder");
            let folder =
                Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("preload-{}", process::id()));
            let _ = fs::remove_dir_all(&folder);
            fs::create_dir_all(&folder).expect("a folder");
            let driver = built.join("libomniheap_cuda_standin.so");
            symlink(driver, folder.join("libcuda.so.1")).expect("a link");
            symlink("libcuda.so.1", folder.join("libcuda.so")).expect("a link");
            let runtime = built.join("libomniheap_hip_forward.so");
            symlink(runtime, folder.join("libamdhip64.so")).expect("a link");
            Self { folder, library: built.join("libomniheap_preload.so") }
        })
    }

    /// Compiles a program with some options of the linker.
    pub(crate) fn compile(&self, name: &str, options: &[&str]) -> PathBuf {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name);
        // Tests run beside each other, and a program that is being written cannot be started.
        static PROGRAMS: AtomicU32 = AtomicU32::new(0);
        let number = PROGRAMS.fetch_add(1, Relaxed);
        let program = self.folder.join(format!("{name}-{number}"));
        let mut cc = Command::new("cc");
        cc.args(["-w", "-O1", "-o"]).arg(&program).arg(source).arg("-L").arg(&self.folder);
        let done = cc.args(options).output().expect("a C compiler");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        program
    }

    /// A program with the driver in reach.
    pub(crate) fn without(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", &self.folder).env_remove("LD_PRELOAD");
        command
    }

    /// A program with the driver in reach and the library loaded.
    pub(crate) fn with(&self, program: &Path) -> Command {
        let mut command = self.without(program);
        command.env("LD_PRELOAD", &self.library);
        command
    }
}

/// Returns what a program printed.
pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns what a program said of errors.
pub(crate) fn complained(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns a count that the stand-in wrote.
pub(crate) fn count(file: &Path, name: &str) -> u64 {
    let text = fs::read_to_string(file).expect("the stand-in writes its counts");
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.map_or(0, |count| count.trim().parse().expect("a number"))
}

/// Gives an order to a program; returns its answer.
pub(crate) fn order(socket: &Path, order: &str) -> String {
    let mut stream = UnixStream::connect(socket).expect("the program listens");
    // In one piece: a program that has read enough of a long order answers and closes.
    stream.write_all(format!("{order}\n").as_bytes()).expect("it reads");
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).expect("it answers");
    answer.trim_end().to_owned()
}
