// What Grafana's own types say a dashboard of ours must be: the raw schema, with the options of the panels that we use
// in place of `Record<string, any>`, and JSON's strings and numbers in place of TypeScript's enums.
import * as dashboard from "@grafana/schema/dist/esm/raw/dashboard/x/dashboard_types.gen";
import * as bargauge from "@grafana/schema/dist/esm/raw/composable/bargauge/panelcfg/x/BarGaugePanelCfg_types.gen";
import * as heatmap from "@grafana/schema/dist/esm/raw/composable/heatmap/panelcfg/x/HeatmapPanelCfg_types.gen";
import * as stat from "@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen";
import * as states from "@grafana/schema/dist/esm/raw/composable/statetimeline/panelcfg/x/StateTimelinePanelCfg_types.gen";
import * as table from "@grafana/schema/dist/esm/raw/composable/table/panelcfg/x/TablePanelCfg_types.gen";
import * as timeseries from "@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen";

type Json<T> = T extends string
  ? `${T}`
  : T extends (infer Item)[]
    ? Json<Item>[]
    : T extends object
      ? { [Key in keyof T]: Json<T[Key]> }
      : T;

// @grafana/schema leaves these to the Prometheus data source.
interface Query {
  refId: string;
  datasource: dashboard.DataSourceRef;
  expr: string;
  legendFormat: string;
  editorMode: "code";
  range?: boolean;
  instant?: boolean;
  format?: "time_series" | "table" | "heatmap";
}

interface Annotation extends dashboard.AnnotationQuery {
  expr: string;
  titleFormat: string;
  textFormat: string;
  tagKeys: string;
  step: string;
}

// The SDK writes the fields of an interval variable on every variable.
interface Variable extends dashboard.VariableModel {
  auto?: boolean;
  auto_count?: number;
  auto_min?: string;
}

type Panel<Type extends string, Options, Custom> = Omit<dashboard.Panel, "type" | "options" | "targets" | "fieldConfig"> & {
  id: number;
  type: Type;
  options: Partial<Options>;
  targets: Query[];
  fieldConfig: {
    defaults: Omit<dashboard.FieldConfig, "custom"> & { custom?: Partial<Custom> };
    overrides: dashboard.FieldConfigSource["overrides"];
  };
};

type Panels =
  | Panel<"timeseries", timeseries.Options, timeseries.FieldConfig>
  | Panel<"stat", stat.Options, never>
  | Panel<"table", table.Options, table.FieldConfig>
  | Panel<"bargauge", bargauge.Options, never>
  | Panel<"heatmap", heatmap.Options, heatmap.FieldConfig>
  | Panel<"state-timeline", states.Options, states.FieldConfig>
  | (Omit<dashboard.RowPanel, "type"> & { type: "row" });

export type Board = Json<
  Omit<dashboard.Dashboard, "panels" | "annotations" | "templating"> & {
    panels: Panels[];
    annotations: { list: Annotation[] };
    templating: { list: Variable[] };
  }
>;
