//! Streams and their captures.

#![expect(unsafe_code, reason = "exports C symbols")]

use core::ffi::{c_int, c_uint, c_void};

use crate::code::{Answer, Code};
use crate::entry::export;
use crate::ffi::{Out, Word};
use crate::op::{HostCall, Op};
use crate::stream::{self, Mode, Order};
use crate::{context, event, pool};

fn resolve(stream: Word) -> Answer<u64> {
    stream::resolve(stream, context::current()?)
}

fn create(out: Out<Word>, flags: c_uint, priority: c_int) -> Answer {
    out.wanted()?;
    let context = context::current()?;
    let order = match flags {
        0 => Order::Blocking,
        1 => Order::Free,
        _ => return Err(Code::INVALID_VALUE),
    };
    out.set(Word::new(stream::create(context, order, priority.clamp(-5, 0))))
}

fn destroy(stream: Word) -> Answer {
    if stream.number() <= 2 {
        return Err(Code::INVALID_HANDLE);
    }
    stream::destroy(stream.number())
}

/// Out-pointers for the facts of a capture.
struct Found {
    status: Out<c_uint>,
    id: Out<u64>,
    graph: Out<Word>,
    dependencies: Out<u64>,
    count: Out<usize>,
}

impl Found {
    fn tell(self, stream: Word) -> Answer {
        self.status.wanted()?;
        let standing = stream::standing(resolve(stream)?)?;
        self.dependencies.set_if_wanted(0);
        self.count.set_if_wanted(0);
        let Some((graph, capture)) = standing else { return self.status.set(0) };
        self.id.set_if_wanted(capture.id);
        self.graph.set_if_wanted(Word::new(graph));
        self.status.set(if capture.is_spoiled { 2 } else { 1 })
    }
}

export! {
    fn cuStreamCreate(out: Out<Word>, flags: c_uint) {
        create(out, flags, 0)
    }

    fn cuStreamCreateWithPriority(out: Out<Word>, flags: c_uint, priority: c_int) {
        create(out, flags, priority)
    }

    fn cuStreamDestroy(stream: Word) {
        destroy(stream)
    }

    fn cuStreamDestroy_v2(stream: Word) {
        destroy(stream)
    }

    fn cuStreamSynchronize / cuStreamSynchronize_ptsz(stream: Word) {
        let stream = resolve(stream)?;
        stream::admit_unsafe()?;
        stream::synchronize(stream)?;
        pool::settle();
        context::current().map(drop)
    }

    fn cuStreamQuery / cuStreamQuery_ptsz(stream: Word) {
        let stream = resolve(stream)?;
        stream::admit_unsafe()?;
        if stream::is_idle(stream)? { Ok(()) } else { Err(Code::NOT_READY) }
    }

    fn cuStreamWaitEvent / cuStreamWaitEvent_ptsz(stream: Word, event: Word, _flags: c_uint) {
        event::order(resolve(stream)?, event.number())
    }

    fn cuStreamGetCtx / cuStreamGetCtx_ptsz(stream: Word, out: Out<Word>) {
        out.set(Word::new(stream::about(resolve(stream)?)?.context))
    }

    fn cuStreamGetId / cuStreamGetId_ptsz(stream: Word, id: Out<u64>) {
        id.set(stream::about(resolve(stream)?)?.number)
    }

    fn cuStreamGetFlags / cuStreamGetFlags_ptsz(stream: Word, flags: Out<c_uint>) {
        let order = stream::about(resolve(stream)?)?.order;
        flags.set(c_uint::from(order == Order::Free))
    }

    fn cuStreamGetPriority / cuStreamGetPriority_ptsz(stream: Word, priority: Out<c_int>) {
        priority.set(stream::about(resolve(stream)?)?.priority)
    }

    fn cuLaunchHostFunc / cuLaunchHostFunc_ptsz(
        stream: Word,
        function: extern "C" fn(*mut c_void),
        data: Word,
    ) {
        let call = HostCall { function, data: data.number() };
        stream::submit(resolve(stream)?, Op::Call(call)).map(drop)
    }

    fn cuStreamBeginCapture / cuStreamBeginCapture_ptsz(stream: Word) {
        stream::begin(resolve(stream)?, Mode::Global)
    }

    fn cuStreamBeginCapture_v2 / cuStreamBeginCapture_v2_ptsz(stream: Word, mode: c_uint) {
        stream::begin(resolve(stream)?, Mode::new(mode)?)
    }

    fn cuStreamEndCapture / cuStreamEndCapture_ptsz(stream: Word, graph: Out<Word>) {
        graph.set(Word::new(0))?;
        graph.set(Word::new(stream::end(resolve(stream)?)?))
    }

    fn cuStreamIsCapturing / cuStreamIsCapturing_ptsz(stream: Word, status: Out<c_uint>) {
        let standing = stream::standing(resolve(stream)?)?;
        status.set(standing.map_or(0, |(_, capture)| if capture.is_spoiled { 2 } else { 1 }))
    }

    fn cuStreamGetCaptureInfo_v2 / cuStreamGetCaptureInfo_v2_ptsz(
        stream: Word,
        status: Out<c_uint>,
        id: Out<u64>,
        graph: Out<Word>,
        dependencies: Out<u64>,
        count: Out<usize>,
    ) {
        Found { status, id, graph, dependencies, count }.tell(stream)
    }

    /// Returns the same facts, and the data of edges, which are all plain.
    fn cuStreamGetCaptureInfo_v3 / cuStreamGetCaptureInfo_v3_ptsz(
        stream: Word,
        status: Out<c_uint>,
        id: Out<u64>,
        graph: Out<Word>,
        dependencies: Out<u64>,
        edges: Out<u64>,
        count: Out<usize>,
    ) {
        edges.set_if_wanted(0);
        Found { status, id, graph, dependencies, count }.tell(stream)
    }
}
