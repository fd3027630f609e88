//! Templates of kernels with a table: what depends on the memory in which the table lies. The build script has it, and the laboratory's
//! lookups.
use core::fmt::Write as _;

/// Shared memory of the largest tables that are copied there, in rows; few devices have more.
pub const SHARED_ROWS: u32 = 3072;

/// Memory of a table.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    /// Read through the constant cache.
    Constant,
    /// Read from device memory.
    Device,
    /// Copied to shared memory first.
    Shared,
}

impl Place {
    /// Fills in what depends on the table's place.
    #[must_use]
    pub fn wgsl(self, text: &str, rows: u32) -> String {
        let tile = format!("var<workgroup> tile: array<vec4<f32>, {rows}>;");
        let stage = stage(rows);
        let (space, table, tile, stage) = match self {
            Self::Constant => ("uniform", "table", "", ""),
            Self::Device => ("storage, read", "table", "", ""),
            Self::Shared => ("storage, read", "tile", tile.as_str(), stage.as_str()),
        };
        text.replace("$space", space)
            .replace("$rows", &rows.to_string())
            .replace("$table", table)
            .replace("$tile", tile)
            .replace("$stage", stage)
    }

    /// Prepends definitions to the text. AMD has no constant bank: there the address is read, through the scalar
    /// cache where all threads of a wave read alike.
    #[must_use]
    pub fn cpp(self, text: &str, rows: u32) -> String {
        let head = match self {
            Self::Constant => {
                "#if defined(__HIPCC_RTC__) || defined(__HIP_DEVICE_COMPILE__)\n#define TABLE table\n#else\nextern \
                 \"C\" { __constant__ float4 omniheap_constant_0[ROWS]; }\n#define TABLE \
                 omniheap_constant_0\n#endif\n#define STAGE\n"
            }
            Self::Device => "#define TABLE table\n#define STAGE\n",
            Self::Shared => {
                "#define TABLE tile\n#define STAGE __shared__ float4 tile[ROWS]; for (unsigned int r = lane; r < ROWS; \
                 r += threads) { tile[r] = table[r]; } __syncthreads();\n"
            }
        };
        format!("#define ROWS {rows}u\n{head}#line 1\n{text}")
    }
}

/// Copies a table to shared memory, four rows for each thread at a time: one at a time, a thread would wait for every
/// single one.
fn stage(rows: u32) -> String {
    let row = |step: u32| format!("lane + {}u", 256 * step);
    let mut text = String::new();
    for first in (0..rows / 256).step_by(4) {
        let batch: Vec<_> = (first..rows / 256).take(4).map(row).collect();
        batch.iter().enumerate().for_each(|(k, row)| {
            write!(text, "let row{first}_{k} = table[{row}]; ").expect("a string takes everything");
        });
        batch.iter().enumerate().for_each(|(k, row)| {
            write!(text, "tile[{row}] = row{first}_{k}; ").expect("a string takes everything");
        });
    }
    let rest = row(rows / 256);
    format!("{text}if ({rest} < {rows}u) {{ tile[{rest}] = table[{rest}]; }} workgroupBarrier();")
}
