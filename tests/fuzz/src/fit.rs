//! The reader of models: whatever the input is, it returns, and what it accepts can be used everywhere.

use super::trace::{LIMITS, use_everywhere};
use omniheap_fit::onnx::Tensors;

/// ONNX models; dimensions that have names are small.
pub fn onnx(data: &[u8]) {
    let dims = [("batch".to_owned(), 4)].into();
    let none = std::collections::BTreeMap::new();
    for dims in [&dims, &none] {
        match Tensors::read(data, dims) {
            Err(error) => assert!(!error.to_string().is_empty()),
            Ok(found) => {
                for tensor in &found.tensors {
                    assert!(tensor.bytes > 0 && tensor.live.start < tensor.live.end);
                }
                match found.trace(&LIMITS) {
                    Ok(trace) => use_everywhere(&trace),
                    Err(error) => assert!(!error.to_string().is_empty()),
                }
            }
        }
    }
}
