//! Modules, functions and launches.

#![expect(unsafe_code, reason = "exports C symbols")]

use core::ffi::{c_int, c_uint};

use crate::code::{Answer, Code};
use crate::entry::export;
use crate::ffi::{In, InText, Out, Word, set_text};
use crate::kernel::Launch;
use crate::op::Op;
use crate::stream::{self, admit_unsafe};
use crate::{context, count, module};

/// `CU_JIT_ERROR_LOG_BUFFER`, and the one for its bytes.
const LOG: c_uint = 5;
const LOG_SIZE: c_uint = 6;

fn load(out: Out<Word>, image: InText) -> Answer {
    out.wanted()?;
    let context = context::current()?;
    admit_unsafe()?;
    let module = module::load(&image.get()?, context, context::device_of(context)?)?;
    out.set(Word::new(module))
}

/// Reads the arguments of a launch.
fn arguments(sizes: &[usize], from: In<Word>) -> Answer<Vec<u64>> {
    let places = from.list(sizes.len())?;
    let read = |(size, place): (&usize, Word)| match size {
        4 => place.read::<u32>().get().map(u64::from),
        _ => place.read::<u64>().get(),
    };
    sizes.iter().zip(places).map(read).collect()
}

fn launch(function: Word, grid: [c_uint; 3], group: [c_uint; 3], shared: c_uint) -> Answer<Launch> {
    let function = module::get(function.number())?;
    let threads = |shape: [c_uint; 3]| shape.iter().map(|&one| u64::from(one)).product::<u64>();
    if threads(group) == 0 || threads(grid) == 0 {
        return Err(Code::INVALID_VALUE);
    }
    if threads(group) > 1024 || i64::from(shared) > i64::from(function.shared) {
        return Err(Code::LAUNCH_OUT_OF_RESOURCES);
    }
    let Some(kernel) = function.kernel else {
        count::broken(&format!("no emulation of the kernel {}", function.name));
        return Err(Code::NOT_SUPPORTED);
    };
    let (shared, symbols) = (shared.into(), function.symbols);
    let threads = threads(grid) * threads(group);
    Ok(Launch { kernel, arguments: Vec::new(), threads, shared, symbols })
}

export! {
    fn cuModuleLoadData(out: Out<Word>, image: InText) {
        load(out, image)
    }

    fn cuModuleLoadDataEx(
        out: Out<Word>,
        image: InText,
        count: c_uint,
        options: In<c_uint>,
        values: In<Word>,
    ) {
        let code = match load(out, image) {
            Ok(()) => return Ok(()),
            Err(code) => code,
        };
        let count = usize::try_from(count).map_err(|_| Code::INVALID_VALUE)?;
        let (options, values) = (options.list(count)?, values.list(count)?);
        let value = |wanted| {
            let found = options.iter().zip(&values).find(|(option, _)| **option == wanted);
            found.map(|(_, value)| *value)
        };
        if let Some((log, size)) = value(LOG).zip(value(LOG_SIZE)) {
            let size = usize::try_from(size.number()).map_err(|_| Code::INVALID_VALUE)?;
            set_text(log.out(), "this is no PTX", size)?;
        }
        Err(code)
    }

    fn cuModuleUnload(module: Word) {
        let context = context::current()?;
        admit_unsafe()?;
        stream::drain(context);
        module::unload(module.number())
    }

    fn cuModuleGetFunction(out: Out<Word>, module: Word, name: InText) {
        context::current()?;
        out.set(Word::new(module::function(module.number(), &name.get()?)?))
    }

    fn cuModuleGetGlobal_v2(address: Out<u64>, size: Out<u64>, module: Word, name: InText) {
        context::current()?;
        let found = module::global(module.number(), &name.get()?)?;
        address.set_if_wanted(found.0);
        size.set_if_wanted(found.1);
        Ok(())
    }

    fn cuFuncGetAttribute(value: Out<c_int>, attribute: c_uint, function: Word) {
        let function = module::get(function.number())?;
        value.set(match attribute {
            0 => 1024,
            8 => function.shared,
            _ => 0,
        })
    }

    fn cuFuncSetAttribute(function: Word, attribute: c_uint, value: c_int) {
        if attribute != 8 || !(0..=227 << 10).contains(&value) {
            return Err(Code::INVALID_VALUE);
        }
        module::set_shared(function.number(), value)
    }

    fn cuLaunchKernel / cuLaunchKernel_ptsz(
        function: Word,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        group_x: c_uint,
        group_y: c_uint,
        group_z: c_uint,
        shared: c_uint,
        stream: Word,
        values: In<Word>,
        _extra: Word,
    ) {
        let context = context::current()?;
        let stream = stream::resolve(stream, context)?;
        let (grid, group) = ([grid_x, grid_y, grid_z], [group_x, group_y, group_z]);
        let launch = launch(function, grid, group, shared)?;
        let arguments = arguments(launch.kernel.sizes, values)?;
        stream::submit(stream, Op::Launch(Launch { arguments, ..launch })).map(drop)
    }
}
