//! Labels from stack frames: the path from the outermost call to the one that allocated.

use super::key;
use crate::builder::Builder;
use crate::error::ErrorKind;
use crate::label::LabelId;
use omniheap_pickle::{Cell, Data};
use std::collections::HashMap;

/// Labels of the frame lists seen so far. Each list is walked once, however often events share it.
#[derive(Debug)]
pub(super) struct Frames {
    labels: HashMap<Cell, LabelId>,
    depth: usize,
}

impl Frames {
    /// Keeps the `depth` innermost frames of a stack.
    pub(super) fn new(depth: usize) -> Self {
        Self { labels: HashMap::new(), depth }
    }

    /// Returns the label for the frames of `entry`; none when it has none.
    pub(super) fn label(
        &mut self,
        data: &Data<'_>,
        entry: Cell,
        builder: &mut Builder,
    ) -> Result<LabelId, ErrorKind> {
        let Some(cell) = data.get(entry, key::FRAMES) else { return Ok(LabelId::NONE) };
        let Some(frames) = data.list(cell).filter(|frames| !frames.is_empty()) else {
            return Ok(LabelId::NONE);
        };
        if let Some(&label) = self.labels.get(&cell) {
            return Ok(label);
        }
        let mut label = LabelId::NONE;
        // The innermost frame comes first.
        for &frame in frames[..frames.len().min(self.depth)].iter().rev() {
            if let Some(text) = describe(data, frame) {
                label = builder.label(label, &text)?;
            }
        }
        self.labels.insert(cell, label);
        Ok(label)
    }
}

/// `function file:line`, or `None` for a frame that says nothing.
fn describe(data: &Data<'_>, frame: Cell) -> Option<String> {
    let name =
        data.get(frame, key::NAME).and_then(|name| data.text(name)).filter(|name| *name != "??")?;
    let path = data.get(frame, key::FILENAME).and_then(|path| data.text(path)).unwrap_or("");
    let file = path.rsplit(['/', '\\']).next().unwrap_or(path);
    match data.int(frame, key::LINE).filter(|_| !matches!(file, "" | "??")) {
        Some(line) => Some(format!("{name} {file}:{line}")),
        None => Some(name.to_owned()),
    }
}
