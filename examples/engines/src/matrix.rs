//! Just enough of 4×4 matrices, column by column.

/// A matrix.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Matrix(pub(crate) [[f32; 4]; 4]);

impl Matrix {
    pub(crate) const ONE: Self = Self([
        [1.0, 0.0, 0.0, 0.0],
        [0.0, 1.0, 0.0, 0.0],
        [0.0, 0.0, 1.0, 0.0],
        [0.0, 0.0, 0.0, 1.0],
    ]);

    pub(crate) fn times(self, other: Self) -> Self {
        let cell = |column: usize, row: usize| {
            (0..4).map(|k| self.0[k][row] * other.0[column][k]).sum::<f32>()
        };
        Self(core::array::from_fn(|column| core::array::from_fn(|row| cell(column, row))))
    }

    pub(crate) fn shift(to: [f32; 3]) -> Self {
        let mut matrix = Self::ONE;
        matrix.0[3][..3].copy_from_slice(&to);
        matrix
    }

    /// Turns about the axes x and y.
    pub(crate) fn turn(x: f32, y: f32) -> Self {
        let (sx, cx) = x.sin_cos();
        let (sy, cy) = y.sin_cos();
        let mut about_x = Self::ONE;
        (about_x.0[1], about_x.0[2]) = ([0.0, cx, sx, 0.0], [0.0, -sx, cx, 0.0]);
        let mut about_y = Self::ONE;
        (about_y.0[0], about_y.0[2]) = ([cy, 0.0, -sy, 0.0], [sy, 0.0, cy, 0.0]);
        about_x.times(about_y)
    }

    /// Looks along -z; depth runs from 0 to 1.
    pub(crate) fn perspective(height: f32, aspect: f32, near: f32, far: f32) -> Self {
        let scale = 1.0 / (height / 2.0).tan();
        let depth = far / (near - far);
        Self([
            [scale / aspect, 0.0, 0.0, 0.0],
            [0.0, scale, 0.0, 0.0],
            [0.0, 0.0, depth, -1.0],
            [0.0, 0.0, near * depth, 0.0],
        ])
    }

    pub(crate) fn bytes(self) -> impl Iterator<Item = u8> {
        self.0.into_iter().flatten().flat_map(f32::to_ne_bytes)
    }
}
