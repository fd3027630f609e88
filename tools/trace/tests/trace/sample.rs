//! Small traces that several tests use.

use omniheap_trace::binary::{MAGIC, Record, Writer};
use omniheap_trace::{Alignment, Backing, HeapId, LabelId, Region, Rung, StreamId};

/// Returns an allocation without a label on stream 0.
pub(crate) const fn allocate(id: u64, size: u64) -> Record {
    let (stream, align, label) = (StreamId(0), Alignment::UNKNOWN, LabelId::NONE);
    Record::Allocate { id, size, stream, align, label }
}

/// Returns a file with every kind of record: two blocks, a move, a failed request.
pub(crate) fn every_record() -> Vec<u8> {
    let mut recorder = Writer::new(Vec::new());
    recorder.title("sample");
    let model = recorder.label(LabelId::NONE, "model");
    let weights = recorder.label(model, "weights");
    let reason = recorder.label(LabelId::NONE, "written by the device");
    let (stream, align) = (StreamId(1), Alignment::new(256).unwrap());
    recorder.record(
        1,
        &Record::BlockAllocate {
            block: 0x7000,
            size: 2 << 20,
            heap: HeapId(0),
            backing: Backing::Memory,
        },
    );
    recorder.record(
        1,
        &Record::BlockAllocate {
            block: 0x9000,
            size: 1 << 20,
            heap: HeapId(1),
            backing: Backing::Memory,
        },
    );
    recorder.record(2, &Record::Allocate { id: 77, size: 4096, stream, align, label: weights });
    recorder.record(2, &Record::BlockOffset { id: 77, region: Region::Device, reason });
    recorder.record(2, &Record::Bind { id: 77, block: 0x7000, offset: 512 });
    recorder.record(3, &allocate(1 << 40, 1 << 20));
    recorder.record(3, &Record::Bind { id: 1 << 40, block: 0x9000, offset: 0 });
    recorder.record(4, &Record::OutOfMemory { size: 5 << 20, stream, rung: Rung::Trim });
    recorder.record(5, &Record::OutOfMemory { size: 5 << 20, stream, rung: Rung::Failed });
    recorder.record(6, &Record::Move { id: 77, block: 0x7000, offset: 0 });
    recorder.record(7, &Record::FreeRequested { id: 1 << 40, stream: StreamId(0) });
    recorder.record(9, &Record::FreeCompleted { id: 1 << 40, stream: StreamId(0) });
    recorder.record(9, &Record::BlockFree { block: 0x9000 });
    recorder.finish().unwrap()
}

/// Returns a block of pages: a gibibyte of addresses, six mebibytes of memory at most, four in the end.
pub(crate) fn paged() -> Vec<u8> {
    let (heap, backing) = (HeapId(2), Backing::Pages);
    let mut recorder = Writer::new(Vec::new());
    recorder.record(0, &Record::BlockAllocate { block: 1, size: 1 << 30, heap, backing });
    recorder.record(1, &Record::PagesTake { bytes: 6 << 20, heap });
    recorder.record(1, &allocate(0, 2 << 20));
    recorder.record(1, &Record::Bind { id: 0, block: 1, offset: 0 });
    recorder.record(2, &allocate(1, 1 << 20));
    recorder.record(2, &Record::Bind { id: 1, block: 1, offset: 8 << 20 });
    recorder.record(3, &Record::PagesReturn { bytes: 2 << 20, heap });
    recorder.finish().unwrap()
}

/// `pairs` allocations, each freed a little later, over several chunks.
pub(crate) fn churn(pairs: u64) -> Vec<u8> {
    let mut recorder = Writer::new(Vec::new());
    for id in 0..pairs {
        recorder.record(id, &allocate(id, 1 + id * 7919 % 100_000));
        if id >= 10 {
            recorder.record(id, &Record::FreeRequested { id: id - 10, stream: StreamId(0) });
            recorder.record(id, &Record::FreeCompleted { id: id - 10, stream: StreamId(0) });
        }
    }
    recorder.finish().unwrap()
}

/// Returns a file of one chunk with a right checksum over whatever is in it.
pub(crate) fn chunk_of(payload: &[u8], records: u32) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0]);
    let mut head = u32::try_from(payload.len()).unwrap().to_le_bytes().to_vec();
    head.extend_from_slice(&records.to_le_bytes());
    let mut crc = flate2::Crc::new();
    crc.update(&head);
    crc.update(payload);
    bytes.extend_from_slice(&head);
    bytes.extend_from_slice(&crc.sum().to_le_bytes());
    bytes.extend_from_slice(payload);
    bytes
}
