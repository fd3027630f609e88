use super::*;

#[test]
fn architectures_are_numbers_with_a_known_suffix() {
    for (text, number, option) in [
        ("sm_90", 90, "--gpu-architecture=sm_90"),
        ("compute_75", 75, "--gpu-architecture=sm_75"),
        ("sm_90a", 90, "--gpu-architecture=sm_90a"),
        ("compute_120f", 120, "--gpu-architecture=sm_120f"),
    ] {
        let arch: Arch = text.parse().expect(text);
        assert_eq!(arch.number(), number);
        assert_eq!(arch.option(Output::Cubin), option);
    }
}

#[test]
fn anything_else_is_no_architecture() {
    let texts = [
        "",
        "sm",
        "sm_",
        "sm_9",
        "sm_9000",
        "90",
        "sm_90 ",
        " sm_90",
        "sm_90b",
        "sm_90aa",
        "SM_90",
        "sm_-90",
        "sm_+9",
        "sm_9٠",
        "sm_90\0",
        "sm_90 -I/",
        "gfx942",
        "sm_00",
        "sm_29",
    ];
    for text in texts {
        let result = text.parse::<Arch>().map_err(|error| error.kind());
        assert_eq!(result, Err(ErrorKind::InvalidConfig), "{text:?}");
    }
    assert!(Arch::new(9, 10).is_err());
    assert!(Arch::new(100, 0).is_err());
}

#[test]
fn an_older_compiler_makes_portable_code() {
    let h200 = Arch::new(9, 0).expect("a capability");
    assert_eq!(h200.choose(&[75, 80, 90, 100]), (h200, Output::Cubin));
    let older = Arch::new(8, 9).expect("a capability");
    assert_eq!(h200.choose(&[75, 80, 89]), (older, Output::Ptx));
    // Nothing to go by: let the compiler say what it thinks of it.
    assert_eq!(h200.choose(&[]), (h200, Output::Cubin));
    assert_eq!(older.option(Output::Ptx), "--gpu-architecture=compute_89");
}

#[test]
fn without_a_compiler_the_error_says_what_to_do() {
    let error = require(None).err().expect("there is none");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    for way_out in ["libnvrtc", "CUDA_HOME", "PTX"] {
        assert!(error.log().contains(way_out), "{error}");
    }
}

/// Returns the instructions of PTX: no comments, no empty lines, no language version.
fn instructions(ptx: &str) -> Vec<&str> {
    let is_code =
        |line: &&str| !(line.is_empty() || line.starts_with("//") || line.starts_with(".version"));
    ptx.trim_end_matches('\0').lines().map(str::trim).filter(is_code).collect()
}

/// Runs where NVRTC 12.9 is found; everywhere else the hashes in `shaders` tell that the source has changed.
#[test]
fn the_compaction_ptx_is_what_its_source_compiles_to() {
    let Some(compiler) = Compiler::get() else { return };
    let source = CString::new(COMPACTION).expect("no zero byte");
    let options = [c"--gpu-architecture=compute_52", c"--std=c++17"];
    // NVRTC 13 no longer compiles for compute_52.
    let Ok(ptx) = compiler.compile(&source, &options, Output::Ptx) else { return };
    let ptx = String::from_utf8(ptx).expect("PTX is text");
    if ptx.contains("release 12.9,") {
        assert_eq!(instructions(&ptx), instructions(COMPACTION_PTX), "compile compact.cu again");
    }
}
