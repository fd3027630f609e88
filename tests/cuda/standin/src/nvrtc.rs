//! The part of the run-time compiler that the backend uses. Its output has the names of kernels, and looks like PTX.
//!
//! The backend finds it by a link to this library with the name `libnvrtc.so.12`.

#![expect(unsafe_code, reason = "exports C symbols")]

use core::ffi::c_int;
use core::fmt::Write as _;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::code::{Answer, Code};
use crate::entry::export_anytime;
use crate::ffi::{InText, Out, Word, set_text};
use crate::handle;

/// `NVRTC_ERROR_INVALID_PROGRAM`
const INVALID_PROGRAM: Code = Code(4);
/// The only architecture: the device's.
const ARCHITECTURE: c_int = 90;

/// A source, and its compiled text.
#[derive(Debug, Default)]
struct Program {
    source: String,
    image: String,
}

static PROGRAMS: Mutex<BTreeMap<u64, Program>> = Mutex::new(BTreeMap::new());

fn programs() -> MutexGuard<'static, BTreeMap<u64, Program>> {
    PROGRAMS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn image(program: Word) -> Answer<String> {
    let programs = programs();
    let found = programs.get(&program.number()).ok_or(INVALID_PROGRAM)?;
    Ok(found.image.clone())
}

/// Returns the names of the kernels of a source.
fn kernels(source: &str) -> impl Iterator<Item = &str> {
    let heads = source.split("__global__").skip(1);
    heads.filter_map(|head| {
        let head = match head.split_once("__launch_bounds__(") {
            Some((before, rest)) if before.trim().is_empty() || before.trim() == "void" => {
                rest.split_once(')')?.1
            }
            _ => head,
        };
        head.split_once('(')?.0.split_whitespace().last()
    })
}

fn compile(source: &str) -> String {
    let mut image = String::from(".version 8.0\n.target sm_90\n.address_size 64\n");
    for name in kernels(source) {
        let _ = writeln!(image, ".visible .entry {name}() {{ ret; }}");
    }
    image
}

export_anytime! {
    fn nvrtcGetNumSupportedArchs(count: Out<c_int>) {
        count.set(1)
    }

    fn nvrtcGetSupportedArchs(list: Out<c_int>) {
        list.set(ARCHITECTURE)
    }

    fn nvrtcCreateProgram(
        out: Out<Word>,
        source: InText,
        _name: Word,
        _count: c_int,
        _headers: Word,
        _names: Word,
    ) {
        let handle = handle::fresh();
        let program = Program { source: source.get()?, ..Program::default() };
        programs().insert(handle, program);
        out.set(Word::new(handle))
    }

    fn nvrtcCompileProgram(program: Word, _count: c_int, _options: Word) {
        let mut programs = programs();
        let found = programs.get_mut(&program.number()).ok_or(INVALID_PROGRAM)?;
        found.image = compile(&found.source);
        Ok(())
    }

    fn nvrtcDestroyProgram(program: Out<Word>) {
        programs().remove(&program.get()?.number()).ok_or(INVALID_PROGRAM)?;
        program.set(Word::new(0))
    }

    fn nvrtcGetPTXSize(program: Word, size: Out<usize>) {
        size.set(image(program)?.len() + 1)
    }

    fn nvrtcGetPTX(program: Word, bytes: Out<u8>) {
        let image = image(program)?;
        set_text(bytes, &image, image.len() + 1)
    }

    fn nvrtcGetCUBINSize(program: Word, size: Out<usize>) {
        size.set(image(program)?.len() + 1)
    }

    fn nvrtcGetCUBIN(program: Word, bytes: Out<u8>) {
        let image = image(program)?;
        set_text(bytes, &image, image.len() + 1)
    }

    fn nvrtcGetProgramLogSize(_program: Word, size: Out<usize>) {
        size.set(1)
    }

    fn nvrtcGetProgramLog(_program: Word, bytes: Out<u8>) {
        bytes.set(0)
    }
}

#[cfg(test)]
mod tests {
    use super::kernels;

    #[test]
    fn kernels_are_found_in_a_source() {
        let source = r#"
            extern "C" __global__ void first(int* to) { to[f(1)] = 1; }
            extern "C" __global__ void __launch_bounds__(256)
                second(const int* from, int count) {}
            __global__ void third() {}"#;
        assert_eq!(kernels(source).collect::<Vec<_>>(), ["first", "second", "third"]);
    }
}
