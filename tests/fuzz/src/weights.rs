//! Weights files: whatever the input is, the readers return, and every tensor that they accept lies inside the file.
//!
//! `services/weights/tests/weights/corpus.rs` runs the same functions on mutated files, with a stable compiler.

use omniheap_weights::WeightsFile;

fn check(bytes: &[u8]) {
    match WeightsFile::tensors_in(bytes) {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(tensors) => {
            for tensor in &tensors {
                assert!(
                    tensor
                        .offset
                        .checked_add(tensor.size)
                        .is_some_and(|end| end <= bytes.len() as u64)
                );
                assert_eq!(tensor.dtype.bytes(tensor.elements()), Some(tensor.size));
            }
        }
    }
}

/// A file of any format.
pub fn header(data: &[u8]) {
    check(data);
}

/// The pickle of a PyTorch file, in a zip file that is sound.
pub fn pickle(data: &[u8]) {
    let mut file = Vec::new();
    let mut directory = Vec::new();
    let entries: [(&[u8], &[u8]); 2] = [(b"a/data.pkl", data), (b"a/data/0", &[7; 64])];
    for (name, bytes) in entries {
        let offset = u32::try_from(file.len()).expect("fuzzers give short inputs");
        let size = u32::try_from(bytes.len()).expect("fuzzers give short inputs").to_le_bytes();
        // Stored: no flags, no time, no checksum that the reader looks at.
        let mut common = vec![20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        common.extend_from_slice(&size);
        common.extend_from_slice(&size);
        common.extend_from_slice(&[u8::try_from(name.len()).expect("short"), 0, 0, 0]);
        file.extend_from_slice(b"PK\x03\x04");
        file.extend_from_slice(&common);
        file.extend_from_slice(name);
        file.extend_from_slice(bytes);
        directory.extend_from_slice(b"PK\x01\x02\x14\x00");
        directory.extend_from_slice(&common);
        directory.extend_from_slice(&[0; 10]);
        directory.extend_from_slice(&offset.to_le_bytes());
        directory.extend_from_slice(name);
    }
    let start = u32::try_from(file.len()).expect("fuzzers give short inputs").to_le_bytes();
    let length = u32::try_from(directory.len()).expect("short").to_le_bytes();
    file.extend_from_slice(&directory);
    file.extend_from_slice(b"PK\x05\x06\0\0\0\0\x02\0\x02\0");
    file.extend_from_slice(&length);
    file.extend_from_slice(&start);
    file.extend_from_slice(&[0, 0]);
    check(&file);
}
