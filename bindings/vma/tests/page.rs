//! The example of `docs/vma.md`, as it stands there.
#![cfg(target_os = "linux")]
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

fn page() -> &'static str {
    include_str!("../../../docs/vma.md")
}

/// Returns the first block of code in C.
fn example() -> &'static str {
    let (_, rest) = page().split_once("```c\n").expect("the page has an example");
    rest.split_once("```\n").expect("the example ends").0
}

/// Returns the library, which lies beside this test or one folder up.
fn library() -> PathBuf {
    let test = env::current_exe().expect("a test knows its file");
    let folders = test.ancestors().skip(1).take(2);
    let mut found = folders.map(|folder| folder.join("libomniheap_vma.a"));
    found.find(|path| path.exists()).expect("the library was built beside the test")
}

#[test]
fn the_example_of_the_page_runs() {
    let folder = env::temp_dir().join(format!("omniheap-vma-page-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("the temporary folder can be written");
    let (source, program) = (folder.join("example.c"), folder.join("example"));
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let compile = |text: &str, more: &[&str]| {
        fs::write(&source, text).expect("the folder was made");
        let mut compiler = Command::new("cc");
        compiler.arg(&source).arg("-o").arg(&program).arg("-I").arg(&include).args(more);
        compiler.args(["-l:libvulkan.so.1", "-lpthread", "-ldl", "-lm"]);
        compiler.stdout(Stdio::null()).output()
    };
    let probe = compile("#include <vulkan/vulkan.h>\nint main(void) { return 0; }\n", &[]);
    if !probe.is_ok_and(|probe| probe.status.success()) {
        println!("SKIPPED: no compiler, no Vulkan headers or no loader here");
        return;
    }
    let library = library();
    let built = compile(example(), &[library.to_str().expect("a path in UTF-8")]);
    let built = built.expect("the compiler was found");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let done = Command::new(&program).output().expect("it was built just now");
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success() && (said == "ok\n" || said.starts_with("skipped")), "{said}");
    if said == "ok\n" {
        let log = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(log.contains("vmaFreeMemory: the allocation was freed before"), "{log}");
    }
    fs::remove_dir_all(&folder).expect("it is this test's own");
}
