// What the page uses of Apache ECharts, and nothing else: esbuild leaves out what is not reached from here.
import { use, init } from 'echarts/core';
import { CustomChart } from 'echarts/charts';
import { GridComponent, DataZoomComponent } from 'echarts/components';
import { CanvasRenderer } from 'echarts/renderers';
import { extendShape, registerShape } from 'echarts/lib/util/graphic.js';

use([CustomChart, GridComponent, DataZoomComponent, CanvasRenderer]);

export { init, extendShape, registerShape };
