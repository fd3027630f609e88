//! Contexts.

#![expect(unsafe_code, reason = "exports C symbols")]

use core::ffi::{c_int, c_uint};

use crate::code::{Answer, Code};
use crate::context;
use crate::entry::export;
use crate::event;
use crate::ffi::{Out, Word};
use crate::knobs::knobs;
use crate::stream::{self, Mode, admit_unsafe};
use crate::teardown;

/// Returns the context that C means; zero is the current one.
fn meant(context: Word) -> Answer<u64> {
    match context.number() {
        0 => context::current(),
        handle => context::known(handle),
    }
}

fn create(out: Out<Word>, flags: c_uint, device: c_int) -> Answer {
    out.wanted()?;
    let context = context::create(context::device(device)?, flags);
    context::push(context);
    out.set(Word::new(context))
}

fn destroy(context: Word) -> Answer {
    let context = context::known(context.number())?;
    if context::is_primary(context) {
        return Err(Code::INVALID_CONTEXT);
    }
    teardown::destroy(context);
    Ok(())
}

export! {
    fn cuCtxCreate_v2(out: Out<Word>, flags: c_uint, device: c_int) {
        create(out, flags, device)
    }

    fn cuCtxCreate_v4(out: Out<Word>, _parameters: Word, flags: c_uint, device: c_int) {
        create(out, flags, device)
    }

    fn cuCtxDestroy_v2(context: Word) {
        destroy(context)
    }

    fn cuCtxDestroy(context: Word) {
        destroy(context)
    }

    fn cuCtxAttach(out: Out<Word>, _flags: c_uint) {
        out.wanted()?;
        let context = context::current()?;
        context::attach(context);
        out.set(Word::new(context))
    }

    fn cuCtxDetach(context: Word) {
        let number = context::known(context.number())?;
        if context::current()? != number {
            return Err(Code::INVALID_CONTEXT);
        }
        let is_last = context::detach(number) && !context::is_primary(number);
        if is_last { destroy(context) } else { Ok(()) }
    }

    fn cuGreenCtxCreate(out: Out<Word>, _resources: Word, device: c_int, _flags: c_uint) {
        out.wanted()?;
        let device = context::device(device)?;
        context::retain(device);
        out.set(Word::new(context::create(device, 0)))
    }

    fn cuGreenCtxDestroy(context: Word) {
        let device = context::device_of(context.number())?;
        destroy(context)?;
        teardown::release(device)
    }

    fn cuCtxFromGreenCtx(out: Out<Word>, context: Word) {
        out.wanted()?;
        out.set(Word::new(context::known(context.number())?))
    }

    fn cuCtxPushCurrent_v2(context: Word) {
        context::push(context::known(context.number())?);
        Ok(())
    }

    fn cuCtxPopCurrent_v2(out: Out<Word>) {
        let context = context::pop()?;
        out.set_if_wanted(Word::new(context));
        Ok(())
    }

    fn cuCtxSetCurrent(context: Word) {
        if context.number() != 0 {
            context::known(context.number())?;
        }
        context::set(context.number());
        Ok(())
    }

    fn cuCtxGetCurrent(out: Out<Word>) {
        out.set(Word::new(context::top().unwrap_or(0)))
    }

    fn cuCtxGetDevice(device: Out<c_int>) {
        let number = context::device_of(context::current()?)?;
        device.set(c_int::try_from(number).unwrap_or(0))
    }

    fn cuCtxGetFlags(flags: Out<c_uint>) {
        flags.set(context::flags_of(context::current()?)?)
    }

    fn cuCtxGetId(context: Word, id: Out<u64>) {
        id.set(meant(context)?)
    }

    fn cuCtxGetApiVersion(context: Word, version: Out<c_uint>) {
        meant(context)?;
        version.set(3020)
    }

    fn cuCtxGetStreamPriorityRange(least: Out<c_int>, greatest: Out<c_int>) {
        context::current()?;
        least.set_if_wanted(0);
        greatest.set_if_wanted(-5);
        Ok(())
    }

    fn cuCtxGetLimit(value: Out<usize>, limit: c_uint) {
        value.set(context::limit(context::current()?, limit)?)
    }

    fn cuCtxSetLimit(limit: c_uint, value: usize) {
        context::set_limit(context::current()?, limit, value)
    }

    fn cuCtxGetCacheConfig(config: Out<c_uint>) {
        context::current()?;
        config.set(0)
    }

    fn cuCtxSetCacheConfig(_config: c_uint) {
        context::current().map(drop)
    }

    fn cuCtxSynchronize() {
        let context = context::current()?;
        admit_unsafe()?;
        stream::drain(context);
        context::current().map(drop)
    }

    fn cuCtxRecordEvent(context: Word, event: Word) {
        if !knobs().can_record {
            return Err(Code::NOT_SUPPORTED);
        }
        event::record_all(event.number(), meant(context)?)
    }

    fn cuCtxEnablePeerAccess(peer: Word, _flags: c_uint) {
        let (own, peer) = (context::current()?, context::known(peer.number())?);
        if own == peer { Err(Code::INVALID_VALUE) } else { Ok(()) }
    }

    fn cuCtxDisablePeerAccess(peer: Word) {
        context::current()?;
        context::known(peer.number()).map(drop)
    }

    fn cuThreadExchangeStreamCaptureMode(mode: Out<c_uint>) {
        let new = Mode::new(mode.get()?)?;
        mode.set(stream::exchange_mode(new))
    }
}
