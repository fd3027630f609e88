//! Parsed labels of a training or inference step: category, block, operator, element type and shape.

use omniheap_trace::{LabelId, Labels};
use serde::Serialize;
use std::collections::HashMap;

/// Purpose of an allocation: the first part of its label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Category {
    /// Weights that are trained or applied.
    Parameter,
    /// State of a module that is not trained, such as running means.
    Buffer,
    /// Gradients of parameters.
    Gradient,
    /// State of the optimizer.
    Optimizer,
    /// Made by the forward pass and kept: for the backward pass, or as the output of a module.
    Activation,
    /// Everything else that operators make.
    Temporary,
    /// Keys and values of a context.
    Cache,
    /// Data that the step begins with.
    Input,
    /// The label says nothing of it, or there is none.
    Unlabelled,
}

impl Category {
    /// Every category, in the order of reports.
    pub const ALL: [Self; 9] = [
        Self::Parameter,
        Self::Buffer,
        Self::Gradient,
        Self::Optimizer,
        Self::Activation,
        Self::Temporary,
        Self::Cache,
        Self::Input,
        Self::Unlabelled,
    ];

    /// Returns the word that labels begin with.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Parameter => "parameter",
            Self::Buffer => "buffer",
            Self::Gradient => "gradient",
            Self::Optimizer => "optimizer",
            Self::Activation => "activation",
            Self::Temporary => "temporary",
            Self::Cache => "cache",
            Self::Input => "input",
            Self::Unlabelled => "unlabelled",
        }
    }

    fn from_word(word: &str) -> Self {
        let named = Self::ALL.into_iter().filter(|each| *each != Self::Unlabelled);
        named.into_iter().find(|each| each.word() == word).unwrap_or(Self::Unlabelled)
    }
}

/// Parsed text of one label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) category: Category,
    /// The numbered module that it belongs to, such as `h/0`; equal for all categories.
    pub(super) block: Option<u32>,
    /// Bits of one element, where the label names an element type; and whether that is a floating-point type.
    pub(super) element: Option<Element>,
    /// Sizes of the dimensions, where the label has them.
    pub(super) shape: Option<Vec<u64>>,
    /// True if a block returns it.
    pub(super) is_output: bool,
    /// True if the backward pass made it.
    pub(super) is_backward: bool,
    /// True if the step of the optimizer made it.
    pub(super) is_update: bool,
    /// True if it is the same data in another memory layout.
    pub(super) is_layout_copy: bool,
    /// The label above: equal for all state of one parameter.
    pub(super) parent: LabelId,
}

/// The type of elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Element {
    pub(super) bits: u64,
    pub(super) is_float: bool,
}

/// The names of a trace's labels.
#[derive(Debug)]
pub(super) struct Names {
    /// Names by label, 0 for none.
    names: Vec<Name>,
    /// Number of blocks.
    pub(super) blocks: u32,
}

impl Names {
    pub(super) fn new(labels: &Labels) -> Self {
        let mut blocks = HashMap::new();
        let ids =
            (0..=labels.len()).map(|id| LabelId(u32::try_from(id).expect("ids have 32 bits")));
        let names = ids.map(|id| name(labels, id, &mut blocks)).collect();
        Self { names, blocks: u32::try_from(blocks.len()).expect("no more than labels") }
    }

    pub(super) fn of(&self, label: LabelId) -> &Name {
        &self.names[label.0 as usize]
    }
}

fn name(labels: &Labels, id: LabelId, blocks: &mut HashMap<String, u32>) -> Name {
    let path = labels.path(id);
    let mut parts: Vec<&str> = path.split('/').collect();
    let last = parts.pop().unwrap_or("");
    let category = parts.first().map_or(Category::Unlabelled, |word| Category::from_word(word));
    let (element, shape) = typed(last);
    Name {
        category,
        block: (category != Category::Unlabelled).then(|| block(&parts, blocks)).flatten(),
        element,
        shape,
        is_output: last.contains("[output]"),
        is_backward: last.contains("[backward]"),
        is_update: last.contains("[optimizer]"),
        is_layout_copy: last.contains("[layout]"),
        parent: labels.parent(id),
    }
}

/// Returns the number of the first numbered module on a path.
fn block(parts: &[&str], blocks: &mut HashMap<String, u32>) -> Option<u32> {
    let is_number =
        |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let at = parts.iter().position(is_number)?;
    let next = u32::try_from(blocks.len()).ok()?;
    Some(*blocks.entry(parts[1..=at].join("/")).or_insert(next))
}

/// Reads the end of a label: `operator float32` or `weight float32[768x2304]`.
fn typed(last: &str) -> (Option<Element>, Option<Vec<u64>>) {
    let Some((_, word)) = last.rsplit_once(' ') else { return (None, None) };
    let (dtype, shape) = word.split_once('[').unwrap_or((word, ""));
    let element = match dtype {
        "float64" => Some((64, true)),
        "float32" => Some((32, true)),
        "float16" | "bfloat16" => Some((16, true)),
        "int64" | "complex64" => Some((64, false)),
        "int32" => Some((32, false)),
        "int16" => Some((16, false)),
        "int8" | "uint8" | "bool" => Some((8, false)),
        _ if dtype.starts_with("float8") => Some((8, true)),
        _ => None,
    };
    let numbers = shape.strip_suffix(']').map(|text| text.split('x').map(str::parse).collect());
    (element.map(|(bits, is_float)| Element { bits, is_float }), numbers.and_then(Result::ok))
}

#[cfg(test)]
mod tests {
    use super::{Category, Names};
    use omniheap_trace::{LabelId, Labels};

    fn labels(paths: &[&str]) -> (Labels, Vec<LabelId>) {
        let mut labels = Labels::default();
        let mut add = |path: &&str| {
            path.split('/').fold(LabelId::NONE, |parent, text| labels.intern(parent, text))
        };
        let ids = paths.iter().map(&mut add).collect();
        (labels, ids)
    }

    #[test]
    fn a_label_says_category_block_type_and_shape() {
        let (labels, ids) = labels(&[
            "parameter/h/0/attn/weight bfloat16[768x2304]",
            "activation/h/0/aten.add.Tensor[output] float32",
            "activation/h/1/aten.add.Tensor[backward] float32",
        ]);
        let names = Names::new(&labels);
        let [weight, output, other] = [0, 1, 2].map(|at| names.of(ids[at]).clone());
        assert_eq!((weight.category, weight.shape), (Category::Parameter, Some(vec![768, 2304])));
        assert_eq!(weight.element.map(|element| element.bits), Some(16));
        assert!(output.is_output && !output.is_backward && other.is_backward);
        assert_eq!(weight.block, output.block, "one block, whatever the category");
        assert_ne!(output.block, other.block);
        assert_eq!(names.blocks, 2);
    }

    #[test]
    fn types_have_bits_and_some_are_floats() {
        for (typed, bits, is_float) in [
            ("float64", 64, true),
            ("float32[2]", 32, true),
            ("float16[3x4]", 16, true),
            ("bfloat16", 16, true),
            ("float8_e4m3fn", 8, true),
            ("int64", 64, false),
            ("complex64", 64, false),
            ("int32", 32, false),
            ("int16", 16, false),
            ("int8", 8, false),
            ("uint8", 8, false),
            ("bool", 8, false),
        ] {
            let (element, _) = super::typed(&format!("weight {typed}"));
            let element = element.expect("a type of PyTorch");
            assert_eq!((element.bits, element.is_float), (bits, is_float), "{typed}");
        }
    }

    #[test]
    fn other_programs_labels_say_nothing() {
        let (labels, ids) =
            labels(&["model.py:12 forward/0/conv.py:3 float", "parameter", "a/b c[1xq]"]);
        let names = Names::new(&labels);
        for id in ids.into_iter().chain([LabelId::NONE]) {
            let name = names.of(id);
            assert_eq!(name.category, Category::Unlabelled);
            assert_eq!((&name.block, &name.element, &name.shape), (&None, &None, &None));
        }
    }
}
