//! A program over cudarc, which opens `libcuda.so` by name while it runs, as those of burn and cubecl do: the library serves it too.
#![cfg_attr(
    all(target_os = "linux", target_arch = "x86_64"),
    expect(unsafe_code, reason = "calls the driver without a wrapper")
)]

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
fn main() {}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn main() -> std::process::ExitCode {
    linux::main()
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod linux {
    use cudarc::driver::{CudaContext, result};
    use libtest_mimic::{Arguments, Failed, Trial};
    use std::os::unix::fs::symlink;
    use std::path::Path;
    use std::process::{Command, ExitCode};
    use std::{env, fs};

    /// Tells this test that it is the program.
    const PROGRAM: &str = "CUDARC_PROGRAM";

    pub(crate) fn main() -> ExitCode {
        if env::var_os(PROGRAM).is_some() {
            program();
            return ExitCode::SUCCESS;
        }
        let trial = Trial::test("memory_of_a_program_over_cudarc_is_ours", served);
        libtest_mimic::run(&Arguments::from_args(), vec![trial]).exit_code()
    }

    /// Asks for memory in every way that cudarc has, and looks at what it wrote there.
    fn program() {
        let context = CudaContext::new(0).expect("a device");
        let stream = context.default_stream();
        let words: Vec<u32> = (0..100_000).collect();
        for _ in 0..10 {
            let made = stream.clone_htod(&words).expect("memory in the stream's order");
            let zeros = stream.alloc_zeros::<u32>(1000).expect("more of it");
            assert_eq!(stream.clone_dtoh(&made).expect("a copy"), words);
            assert_eq!(stream.clone_dtoh(&zeros).expect("a copy"), vec![0; 1000]);
            // SAFETY: a size that is not zero; the context is this thread's.
            let plain = unsafe { result::malloc_sync(1 << 20) }.expect("memory");
            // SAFETY: allocated above, and used by nothing.
            unsafe { result::free_sync(plain) }.expect("it was live");
        }
        println!("done");
    }

    /// Runs the program; returns how often the driver was asked for memory in a stream's order, and for plain memory.
    fn asked(folder: &Path, preload: Option<&Path>) -> Result<[u64; 2], Failed> {
        let counts = folder.join(if preload.is_some() { "with" } else { "without" });
        let mut command = Command::new(env::current_exe()?);
        command.env(PROGRAM, "1").env("LD_LIBRARY_PATH", folder).env("STANDIN_COUNTS", &counts);
        let done = command.envs(preload.map(|library| ("LD_PRELOAD", library))).output()?;
        if done.stdout != b"done\n" {
            return Err(
                format!("{}: {}", done.status, String::from_utf8_lossy(&done.stderr)).into()
            );
        }
        let text = fs::read_to_string(counts)?;
        let count = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.map_or(Ok(0), str::parse)
        };
        Ok([count("cuMemAllocAsync")?, count("cuMemAlloc_v2")?])
    }

    fn served() -> Result<(), Failed> {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("preload-cudarc");
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder)?;
        let own = env::current_exe()?;
        // Only the second name: with the first one, a program that is linked would find the driver too.
        symlink(own.with_file_name("libomniheap_cuda_standin.so"), folder.join("driver"))?;
        symlink("driver", folder.join("libcuda.so"))?;
        let without = asked(&folder, None)?;
        let with = asked(&folder, Some(&own.with_file_name("libomniheap_preload.so")))?;
        if without == [20, 10] && with == [0, 0] {
            return Ok(());
        }
        Err(format!("the driver was asked {without:?} times, and {with:?} with the library").into())
    }
}
