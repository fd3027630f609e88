//! Every decision of the built-in rules, on every device, as a number: a rule changes on purpose or not at all.
use super::{all, anything, index, random};
use crate::{DefaultPolicy, Policy as _, judge, refused, spill};
use alloc::{format, string::String, vec::Vec};

/// Hash of the decisions about 4,000 requests on each device. Where a rule is meant to change, look at what else does,
/// and write what the test says.
const DECIDED: [(&str, u64); 9] = [
    ("H200, compute", 11_456_830_820_878_562_883),
    ("MI300X, compute", 11_163_466_611_452_881_246),
    ("RX 7900 XTX, compute", 7_543_032_905_013_446_201),
    ("RTX 4090, graphics", 11_617_121_669_164_660_961),
    ("RTX 2080, graphics, small window", 4_099_042_985_481_640_498),
    ("Iris Xe, graphics", 13_879_958_303_731_936_204),
    ("Adreno 740, graphics", 6_376_182_465_571_403_339),
    ("Mali-G78, graphics", 2_223_113_203_548_463_901),
    ("WebGPU default limits", 2_859_766_153_284_796_209),
];

/// Sizes at which something may change: around steps of tables, limits of devices, and shares of heaps.
fn sizes() -> Vec<u64> {
    let steps = (0..40).map(|power| 1u64 << power);
    let between = [1536, 3584, 5632, 6 << 10, 7680, 12 << 10, 48 << 10, 96 << 10, 100 << 10];
    steps
        .chain(between)
        .flat_map(|size| [size - 1, size, size + 1])
        .filter(|size| *size > 0)
        .collect()
}

/// Adds a text to a number (FNV-1a).
fn add(sum: u64, text: &str) -> u64 {
    text.bytes().fold(sum, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[test]
fn every_decision_is_the_one_that_was_written_down() {
    let sizes = sizes();
    let mut decided = Vec::new();
    for device in all() {
        let (mut next, mut sum) = (random(3), 0xcbf2_9ce4_8422_2325);
        let profile = DefaultPolicy.profile(&device);
        for _ in 0..4000 {
            let mut request = anything(&mut next);
            request.layout.size = sizes[index(next(sizes.len() as u64))];
            if next(3) == 0 {
                request = request.reuse(u32::try_from(next(7)).expect("small"));
            }
            if next(4) == 0 {
                request = request.touches(sizes[index(next(60))]);
            }
            let placed = DefaultPolicy.place(&request, &device);
            let told = match &placed {
                Ok(placed) => format!("{:?}", judge(&request, &device, &profile, placed.region)),
                Err(_) => format!("{:?}", refused(&request, &device, &profile)),
            };
            let spilled = spill(&request, &device);
            sum = add(sum, &format!("{placed:?} {told} {:?}", spilled.as_slice()));
        }
        decided.push((device.device.name.clone(), sum));
    }
    let known = DECIDED.map(|(name, sum)| (String::from(name), sum));
    assert_eq!(decided, known);
}
